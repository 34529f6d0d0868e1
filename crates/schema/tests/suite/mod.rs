mod make;
mod official;
mod only_declared;
mod property;
mod table;
