// Files of several families taken in as one: all are in the database after a crash, or none.
//
// RocksDB can do this (DB::PrepareFileIngestion, DB::CommitFileIngestionHandles: one atomic group of records in its
// MANIFEST), but its C interface takes files in for one family at a time. take_in.rs is the only caller.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "rocksdb/c.h"
#include "rocksdb/db.h"
#include "rocksdb/options.h"

using ROCKSDB_NAMESPACE::ColumnFamilyHandle;
using ROCKSDB_NAMESPACE::DB;
using ROCKSDB_NAMESPACE::FileIngestionHandle;
using ROCKSDB_NAMESPACE::IngestExternalFileArg;
using ROCKSDB_NAMESPACE::Status;

// As in RocksDB's db/c.cc. A version that has them otherwise fails the tests of this folder.
struct rocksdb_t {
  DB* rep;
};
struct rocksdb_column_family_handle_t {
  ColumnFamilyHandle* rep;
  bool immortal;
};

namespace {

enum Outcome { kDone = 0, kAgain = 1, kFailed = 2 };

int Tell(const Status& status, char** why) {
  if (status.ok()) return kDone;
  const std::string text = status.ToString();
  *why = static_cast<char*>(std::malloc(text.size() + 1));
  if (*why != nullptr) std::memcpy(*why, text.c_str(), text.size() + 1);
  return status.IsTryAgain() || status.IsBusy() ? kAgain : kFailed;
}

}  // namespace

extern "C" {

// Links the files into the database's folder and syncs them; nothing is seen of them yet. Each path has its family, and
// those of one family follow each other.
int neokv_prepare(rocksdb_t* db, rocksdb_column_family_handle_t* const* families, const char* const* paths,
                  size_t count, FileIngestionHandle** prepared, char** why) noexcept {
  std::vector<IngestExternalFileArg> args;
  for (size_t n = 0; n < count; n++) {
    if (n == 0 || families[n]->rep != families[n - 1]->rep) {
      IngestExternalFileArg& arg = args.emplace_back();
      arg.column_family = families[n]->rep;
      // The first link stays: it is needed if the commit fails. Copied where there are no links.
      arg.options.link_files = true;
      // Nobody reads what was just in memory.
      arg.options.fill_cache = false;
    }
    args.back().external_files.emplace_back(paths[n]);
  }
  std::unique_ptr<FileIngestionHandle> handle;
  const Status status = db->rep->PrepareFileIngestion(args, &handle);
  *prepared = handle.release();
  return Tell(status, why);
}

// Makes all of them part of the database, or takes the links away again. `prepared` is used up.
int neokv_commit(rocksdb_t* db, FileIngestionHandle* prepared, char** why) noexcept {
  std::unique_ptr<FileIngestionHandle> handle(prepared);
  return Tell(db->rep->CommitFileIngestionHandle(std::move(handle)), why);
}

// Takes the links away. `prepared` is used up.
void neokv_abandon(FileIngestionHandle* prepared) noexcept { delete prepared; }
}
